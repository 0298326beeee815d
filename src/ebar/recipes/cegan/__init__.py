"""Tables and figures of the calibrated energy GAN: appendix B of Dai 2019 (thesis), and Dai et al. 2017a."""
