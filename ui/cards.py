"""The studio's templates as the page shows them, drawn once each."""

from sakura.errors import UserError
from sakura.studio import Studio, TemplateCard
from ui.views import TemplateView, template_view


class Cards:
    """Template cards by id. Looks again when a template is asked for that was added meanwhile."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._cards: dict[str, TemplateCard] = {}
        self._views: dict[str, TemplateView] = {}

    def all(self) -> list[TemplateCard]:
        """All templates, shipped ones first."""
        cards = self._studio.templates()
        self._cards = {card.template_id: card for card in cards}
        return cards

    def card(self, template_id: str) -> TemplateCard:
        """One template. Raises UserError when there is none of that id."""
        if template_id not in self._cards:
            self.all()
        if template_id not in self._cards:
            raise UserError("This template is not there any more; choose another one.")
        return self._cards[template_id]

    def view(self, template_id: str) -> TemplateView:
        """One template as the browser draws it. Raises UserError when there is none of that id."""
        if template_id not in self._views:
            self._views[template_id] = template_view(self.card(template_id))
        return self._views[template_id]
