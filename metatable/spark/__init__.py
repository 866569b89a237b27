"""The engine on Spark. The only folder that imports pyspark."""
