"""The settings of all Spark sessions of the tests: small and quiet."""

SESSION_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # A stream without new rows looks again ten times a second, not a hundred times.
    "spark.sql.streaming.pollingDelay": "100ms",
    # Nothing may depend on the zone of the session, so it is one that is never UTC.
    "spark.sql.session.timeZone": "America/Los_Angeles",
    # Many short jobs: compiling well costs more than it brings, and so does looking at plans that no test reads.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xmn256m",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
