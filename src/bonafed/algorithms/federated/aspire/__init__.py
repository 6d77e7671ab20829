"""ASPIRE-EASE: an asynchronous single-loop method for min-max problems over clients."""
