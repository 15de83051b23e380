"""The coordinator's side of jobs: its node, the walk of a job, lost parties and their return.

Modules:
    attempts     makes attempts at jobs and resumes them
    auto_resume  notices lost parties, resumes jobs on their return, reports ends of jobs to them
    driven_jobs  the jobs that this process drives, and the status of every job
    earlier      time and work of earlier attempts
    intake       makes a manifest of a submission
    job_queue    limits the running jobs and picks the next one
    job_states   every transition of a job's state, in one table
    journals     journals and status of jobs, costs of steps, followers of a journal
    losses       training losses that grow, and the warning about them
    node         the users' requests, and their rights to make them
    outcomes     how attempts end
    party_gates  parties that queued jobs wait for
    reports      adds up reports of parties
    result       the result of a finished job
    rooms        has parties reserve memory for a job
    stage        walks one stage
    walk         one attempt: its state, and questions to parties
    walk_maker   makes the walk of a stored job
    walker       walks a job from agreement to result
"""
