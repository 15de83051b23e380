"""What a party's owner allows, judged: declared tables, budgets, sets of rows and parties."""
