"""Entry point of an API process: ``python -m api``, settings from the environment."""

from api.server import serve
from workers.process import run_process, settings_of_environment

if __name__ == "__main__":
    run_process(settings_of_environment(), serve)
