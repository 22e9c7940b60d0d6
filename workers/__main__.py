"""Entry point of a worker process: ``python -m workers``, settings from the environment."""

import gc

if __name__ == "__main__":
    # Hardly anything is garbage while modules are loaded, and looking for it takes a sixth of the time. ``run_process``
    # begins with it.
    gc.disable()
    from workers.process import run_process, settings_of_environment
    from workers.worker_service import serve_until_signalled

    run_process(settings_of_environment(), serve_until_signalled)
