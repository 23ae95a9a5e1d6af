"""A disk that fills up, becomes slow, stands still and loses power: a file system of this process, mounted by FUSE."""
