"""Entry point of an API process: ``python -m api``, settings from the environment."""

from workers.loading import loading

if __name__ == "__main__":
    with loading():
        from api.server import serve
        from workers.process import run_process, settings_of_environment

    run_process(settings_of_environment(), serve)
