"""The command line: `watersmeet run`, `explain`, `sample-data` and `demo`.

specs      --stream and --sink                   files     existence and format of a stream's files
hints      --rate and --selectivity              wording   errors in the words of the command line
parser     options and help                      on_spark  a session and the join over its streams
commands   the commands themselves               before_spark  checks before Spark starts
"""

from watersmeet.cli.commands import main

__all__ = ["main"]
