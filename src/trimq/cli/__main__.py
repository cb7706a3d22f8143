"""`python -m trimq.cli`: the command without its installed script."""

import sys

from trimq.cli.main import main

sys.exit(main())
