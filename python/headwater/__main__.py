"""`python -m headwater`, for where the command is not on the PATH."""

from headwater.cli.main import main

raise SystemExit(main())
