"""Images as a model reads them, without torch.

decode.py decodes them; processor.py makes pixels of one size, as preprocessor_config.json says.
Folders of images and their classes are tables (tables/labelled_images.py).
"""
