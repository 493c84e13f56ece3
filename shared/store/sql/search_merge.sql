-- SQLite: merge parts of the search index, so many pages of them; grams that were deleted are left out.
INSERT INTO search_grams (search_grams, rank) VALUES ('merge', :pages)
