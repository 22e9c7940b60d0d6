"""Entry point of a worker process: ``python -m workers``, settings from the environment."""

from workers.loading import loading

if __name__ == "__main__":
    with loading():
        from workers.process import run_process, settings_of_environment
        from workers.worker_service import serve_until_signalled

    run_process(settings_of_environment(), serve_until_signalled)
