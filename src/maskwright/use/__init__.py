"""What is done with a pretrained model without training it: asked, measured, shown."""
