"""A task that only the settings of ``tests.django_site`` lead to."""

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task


@task(backend="loops", queue_name="loops")
async def more():
    return "more"
