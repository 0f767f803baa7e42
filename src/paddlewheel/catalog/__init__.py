"""Model packs that can be pulled from a package index: where from, hashes, licence, dictionary."""
