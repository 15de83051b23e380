"""What a person reads about a job: progress in the terminal and one HTML page."""
