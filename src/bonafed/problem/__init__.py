"""The problem: losses, predictors, risks, regularisers, worst cases, and what an affine minorant
proves.
"""
