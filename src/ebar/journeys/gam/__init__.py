"""Global autoregressive models, Parshakova et al. 2019: r, then λ, then samples of P_λ, then π."""
