"""The engine on Spark. The only folder that imports pyspark, of a version that will do."""

import pyspark

from metatable.spark.demands import check_version

check_version(pyspark.__version__, "pyspark")
