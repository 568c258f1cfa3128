"""Models for other programs: what a model computes, written in a form that others run."""
