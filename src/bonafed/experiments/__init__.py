"""The experiments of the papers, one folder each: their instances, tables and figures."""
