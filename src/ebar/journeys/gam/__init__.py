"""Global autoregressive models, document 000: r, then λ, then samples of P_λ, then π."""
