"""Libraries of HFiles in other languages, as programs: jars.py, rust.py fetch, program.py asks."""
