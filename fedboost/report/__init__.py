"""What a person reads about a job: progress in the terminal and one HTML page.

Modules:
    audit          results of attacks as bars
    card           a job as a card in a notebook
    charts         line charts and bars in SVG
    contributions  contributions of columns as bars
    costs          time and bytes by step, party and link
    disclosure     who learned what
    html           HTML that escapes what is put into it
    outcome        the result's figures and tables
    page           the whole report as one file
    pictures       SVG files that stand alone
    progress       progress in the terminal
    schedule       forests from round to round
    seen           what events have said so far, for progress
    story          reads a journal once and checks it
    sweep          sections about a sweep
    tables         tables and lists
    terms          what was asked for, by whom, and what happened
    ticks          round numbers for axes
    training       learning curves, ROC, importance
    trees          draws a tree in SVG or DOT
    units          numbers, bytes and times for people
"""
