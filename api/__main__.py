"""Entry point of an API process: ``python -m api``, settings from the environment."""

import gc

if __name__ == "__main__":
    # As in ``workers.__main__``.
    gc.disable()
    from api.server import serve
    from workers.process import run_process, settings_of_environment

    run_process(settings_of_environment(), serve)
