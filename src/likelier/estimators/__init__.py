"""Estimators: thin scikit-learn shells that name one combination of parts each."""
