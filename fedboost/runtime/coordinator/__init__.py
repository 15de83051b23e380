"""The coordinator's side of jobs: its node, the walk of a job, who has gone and comes back.

Modules:
    attempts       makes attempts at jobs and resumes them
    auto_resume    waits until lost parties are back
    costs          adds up what steps cost
    earlier        what earlier attempts have spent
    intake         makes a manifest of a submission
    job_queue      how many jobs run at once, and whose turn it is
    job_states     every move of a job, in one table
    job_status     a job's status and journal for users
    journals       the journals of jobs, and who follows them
    liveness       notices idle parties that are gone
    losses         training losses, and when users are warned of them
    node           what users may ask, and who may ask it
    notifications  tells lost parties how a job ended
    result         a finished job's result
    stage          walks one stage
    telling        what hosts told, for the result
    walker         walks one job from agreement to result
"""
