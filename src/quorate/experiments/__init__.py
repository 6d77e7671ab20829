"""The experiments of the papers, one folder each: generators of their instances, tables and figures."""
