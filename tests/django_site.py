"""The settings of a Django project whose tasks are those of ``tests.django_views``."""

import os

SECRET_KEY = "none"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.django_views"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SITE_DATABASE", ":memory:"),
    }
}
_BACKEND = "deadq.contrib.django_tasks.DeadqBackend"
TASKS = {
    "default": {
        "BACKEND": _BACKEND,
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"capacity": 4, "within": 20.0, "prefix": "site."},
    },
    "loops": {
        "BACKEND": _BACKEND,
        "QUEUES": ["loops"],
        "OPTIONS": {
            "capacity": 4,
            "within": 20.0,
            "prefix": "site.",
            "modules": ["tests.django_more"],
        },
    },
}


def asked(**settings: str) -> None:
    """A process of the project that does what a test asks for."""
    os.environ |= {"DJANGO_SETTINGS_MODULE": "tests.django_site", **settings}
    import django

    django.setup()
    from tests.django_views import answer

    answer()
