"""Every kernel of the ladder, executed on the emulator with its checks on."""
