"""`python -m rawflash` is `python -m rawflash.run`."""

import sys

from rawflash.run import main

sys.exit(main())
