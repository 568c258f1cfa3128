"""scikit-learn estimators: one process plays all the sites.

`fit(X, y, sites)` takes one site label per row; without it the rows are dealt out at random.
They work in Pipeline, GridSearchCV, cross_val_score and clone. What a fit cost to communicate
is in `transmissions_` and `bytes_`, all that happened in `history_`.
"""
