"""From texts to unit vectors: the embedders and the cache before them."""
