"""Yang et al. 2018 and appendix A of Dai's thesis: mixtures of softmaxes, and what a softmax cannot express."""
