"""What an operator does to the store by hand: collect, check, back up, restore. It works on files, without the API."""
