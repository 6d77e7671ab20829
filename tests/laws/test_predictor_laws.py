"""What every predictor must satisfy: the laws of `predictor_laws.py` over PREDICTORS."""

import pytest
from predictor_laws import LAWS

from examples import PREDICTORS


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("predictor", PREDICTORS, ids=repr)
def test_law(law, predictor):
    law(predictor)
