"""Writing: a data commit takes rows in and publishes one version. `commit_pass` has the order of
its steps. Changes of columns (`alter`) and of the index (`adopt`, `change_index`) are here, too.
"""
