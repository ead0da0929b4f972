"""The command line: `watersmeet run`, `explain`, `sample-data` and `demo`.

specs      what --stream and --sink say          files     what the files tell of themselves
hints      what --rate and --selectivity say     wording   errors in the words of the command line
parser     options and help                      on_spark  a session and the join over its streams
commands   what each command does
"""

from watersmeet.cli.commands import main

__all__ = ["main"]
