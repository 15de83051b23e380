"""A job for people: progress in the terminal and one HTML page.

Modules:
    audit          results of attacks as bars
    benefit        the guest's model alone beside the common one
    card           a job as a card in a notebook
    charts         line charts and bars in SVG
    consoles       terminal output of texts as they are
    contributions  contributions of columns as bars
    costs          time and bytes by step, party and link
    disclosure     messages by receiver and content
    html           HTML with automatic escaping
    outcome        the result's figures and tables
    page           the whole report as one file
    pictures       SVG files that stand alone
    progress       progress in the terminal
    schedule       forests from round to round
    seen           a job's state from its events, for progress
    states         states of jobs in words
    steps          titles of steps
    story          reads a journal once and checks it
    sweep          sections about a sweep
    tables         tables and lists
    terms          the job's request, user and timeline
    ticks          round numbers for axes
    training       learning curves, ROC, importance
    trees          draws a tree in SVG or DOT
    units          numbers, bytes and times for people
"""
