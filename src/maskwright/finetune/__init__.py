"""From a pretrained model and labelled texts to a model of the task."""
