"""The engine on Spark. Only this folder imports pyspark, and refuses a version that is too old."""

import pyspark

from metatable.spark.demands import check_version

check_version(pyspark.__version__, "pyspark")
