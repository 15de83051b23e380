"""The coordinator's side of jobs: its node, the walk of a job, who has gone and comes back.

Modules:
    attempts     makes attempts at jobs and resumes them
    auto_resume  notices lost parties, waits until they are back, tells them ends
    earlier      time and work of earlier attempts
    intake       makes a manifest of a submission
    job_queue    how many jobs run at once, and whose turn it is
    job_states   every move of a job, in one table
    journals     journals and status of jobs, what steps cost, and who follows
    losses       training losses that grow, and the warning about them
    node         what users may ask, and who may ask it
    reports      adds up reports of parties
    result       a finished job's result: what hosts told, losses, earlier attempts
    rooms        has parties hold memory for a job
    stage        walks one stage
    walk         one attempt: its state, and questions to parties
    walker       walks a job from agreement to result
"""
