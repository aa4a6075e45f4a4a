"""The live page, which the controller serves to browsers."""
