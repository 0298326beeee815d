"""What is made from other files of the repository, and what tries a release."""
