"""Semi-supervised learning with a bad GAN: Dai et al. 2017b; Dai 2019 (thesis), 6.3 and appendix C."""
