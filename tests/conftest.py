"""Being here, this file puts its folder on the import path, so that every test can ``import examples``."""
