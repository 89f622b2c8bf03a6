"""Running a decided epoch again: on its recorded plan, into DataFrames, without any effect."""
