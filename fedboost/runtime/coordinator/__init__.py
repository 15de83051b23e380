"""The coordinator's side of jobs: its node, the walk of a job, who has gone and comes back.

Modules:
    attempts       makes attempts at jobs and resumes them
    auto_resume    notices lost parties, waits until they are back, tells them ends
    intake         makes a manifest of a submission
    job_queue      how many jobs run at once, and whose turn it is
    job_states     every move of a job, in one table
    journals       journals and status of jobs, what steps cost, and who follows
    node           what users may ask, and who may ask it
    result         a finished job's result: what hosts told, losses, earlier attempts
    rooms          has parties hold memory for a job
    stage          walks one stage
    walker         walks one job from agreement to result
"""
