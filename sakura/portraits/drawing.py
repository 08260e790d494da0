"""Draw a portrait, a garment or a mask with Skia. All coordinates are on a 256 x 256 canvas."""

import random
from collections.abc import Callable
from typing import Literal

import numpy as np
import skia

from sakura.portraits.factors import CLOTH_COLORS, HAIR_COLORS, SKIN_COLORS, Portrait

Rgb = tuple[float, float, float]
Region = Literal["face", "garment", "hair", "eyes", "mouth"]

CANVAS = 256
HEAD_X, HEAD_Y = 128.0, 116.0
HEAD_RX, HEAD_RY = 42.0, 52.0


def _argb(color: Rgb, alpha: int = 255) -> int:
    red, green, blue = (int(min(255, max(0, value))) for value in color)
    return skia.Color(red, green, blue, alpha)


def _shade(color: Rgb, factor: float) -> Rgb:
    return (color[0] * factor, color[1] * factor, color[2] * factor)


def _fill(color: Rgb, alpha: int = 255) -> skia.Paint:
    return skia.Paint(AntiAlias=True, Color=_argb(color, alpha))


def _pen(color: Rgb, width: float, alpha: int = 255) -> skia.Paint:
    return skia.Paint(
        AntiAlias=True,
        Color=_argb(color, alpha),
        Style=skia.Paint.kStroke_Style,
        StrokeWidth=width,
        StrokeCap=skia.Paint.kRound_Cap,
    )


def _linear(start: Rgb, end: Rgb, a: tuple[float, float], b: tuple[float, float]) -> skia.Paint:
    shader = skia.GradientShader.MakeLinear([a, b], [_argb(start), _argb(end)])
    return skia.Paint(AntiAlias=True, Shader=shader)


def _oval(x: float, y: float, rx: float, ry: float) -> skia.Path:
    return skia.Path().addOval(skia.Rect(x - rx, y - ry, x + rx, y + ry))


def _polygon(*points: tuple[float, float]) -> skia.Path:
    return skia.Path.Polygon([skia.Point(x, y) for x, y in points], True)


def _torso() -> skia.Path:
    path = skia.Path()
    path.moveTo(20, 256)
    path.cubicTo(22, 205, 50, 192, 100, 184)
    path.lineTo(156, 184)
    path.cubicTo(206, 192, 234, 205, 236, 256)
    path.close()
    return path


def _head(person: Portrait, grow: float = 0.0) -> skia.Path:
    return _oval(HEAD_X, HEAD_Y, HEAD_RX * person.head_width + grow, HEAD_RY * person.head_height + grow)


def _draw_background(canvas: skia.Canvas, person: Portrait) -> None:
    first, second = person.back_color, person.back_color_2
    if person.background == "plain":
        canvas.drawPaint(_fill(first))
        return
    canvas.drawPaint(_linear(first, second, (0, 0), (CANVAS, CANVAS)))
    if person.background == "circles":
        # The circles are a function of the colours, so that a portrait stays a plain list of factors.
        rng = random.Random(f"{first}{second}")
        for _ in range(9):
            color = (rng.randint(60, 235), rng.randint(60, 235), rng.randint(60, 235))
            canvas.drawCircle(rng.uniform(0, 256), rng.uniform(0, 256), rng.uniform(12, 44), _fill(color, 150))
    elif person.background == "stripes":
        for x in range(-252, 512, 36):
            canvas.drawLine(x, 0, x + 120, CANVAS, _pen(_shade(second, 0.85), 10))
    elif person.background == "window":
        canvas.drawRect(skia.Rect(20, 20, 110, 130), _fill((200, 225, 245)))
        canvas.drawLine(65, 20, 65, 130, _pen((250, 250, 250), 5))
        canvas.drawLine(20, 75, 110, 75, _pen((250, 250, 250), 5))
        canvas.drawRect(skia.Rect(190, 40, 240, 110), _fill(_shade(first, 0.6)))
    elif person.background == "hills":
        canvas.drawPath(_oval(60, 250, 130, 100), _fill(_shade(second, 0.70)))
        canvas.drawPath(_oval(210, 260, 120, 120), _fill(_shade(second, 0.55)))
        canvas.drawCircle(214, 46, 22, _fill((250, 230, 150)))


def _draw_garment(canvas: skia.Canvas, person: Portrait) -> None:
    cloth, accent = CLOTH_COLORS[person.cloth_color], CLOTH_COLORS[person.accent_color]
    canvas.save()
    canvas.clipPath(_torso(), doAntiAlias=True)
    lit, shaded = _shade(cloth, 1.05 - 0.08 * person.light), _shade(cloth, 0.80 + 0.08 * person.light)
    canvas.drawPaint(_linear(lit, shaded, (20, 190), (236, 256)))

    if person.pattern == "stripes":
        for y in range(188, 260, 14):
            canvas.drawRect(skia.Rect(0, y, CANVAS, y + 6), _fill(accent))
    elif person.pattern == "dots":
        for row, y in enumerate(range(190, 262, 15)):
            for x in range(8 + 9 * (row % 2), CANVAS, 18):
                canvas.drawCircle(x, y, 3.6, _fill(accent))
    elif person.pattern == "checks":
        for row, y in enumerate(range(186, 260, 16)):
            for x in range(16 * (row % 2), CANVAS, 32):
                canvas.drawRect(skia.Rect(x, y, x + 16, y + 16), _fill(accent, 150))
    elif person.pattern == "logo":
        canvas.drawCircle(128, 232, 15, _fill(accent))
        canvas.drawCircle(128, 232, 7, _fill(cloth))

    if person.garment == "jacket":
        canvas.drawRect(skia.Rect(112, 180, 144, 256), _fill(_shade(accent, 0.95)))
        for side in (-1, 1):
            lapel = _polygon(
                (128 + side * 16, 256), (128 + side * 16, 196), (128 + side * 34, 184), (128 + side * 44, 206)
            )
            canvas.drawPath(lapel, _fill(_shade(cloth, 0.7)))
    elif person.garment == "shirt":
        canvas.drawLine(128, 190, 128, 256, _pen(_shade(cloth, 0.65), 2))
        for y in range(204, 256, 14):
            canvas.drawCircle(128, y, 2.2, _fill(_shade(cloth, 0.5)))
    elif person.garment == "hoodie":
        canvas.drawLine(116, 206, 112, 238, _pen((245, 245, 245), 3))
        canvas.drawLine(140, 206, 144, 238, _pen((245, 245, 245), 3))
        canvas.drawCircle(128, 188, 40, _pen(_shade(cloth, 0.72), 9))

    for side in (-1, 1):
        canvas.drawLine(128 + side * 70, 256, 128 + side * 62, 214, _pen(_shade(cloth, 0.6), 3, 120))
    canvas.restore()


def _draw_neck(canvas: skia.Canvas, person: Portrait) -> None:
    canvas.drawRect(skia.Rect(108, 150, 148, 196), _fill(_shade(SKIN_COLORS[person.skin], 0.8)))


def _draw_neckline(canvas: skia.Canvas, person: Portrait) -> None:
    skin = _fill(_shade(SKIN_COLORS[person.skin], 0.8))
    if person.garment in ("tee", "hoodie"):
        canvas.drawPath(_oval(128, 184, 27, 12), skin)
    elif person.garment == "vneck":
        canvas.drawPath(_polygon((100, 180), (156, 180), (128, 218)), skin)
    else:
        canvas.drawPath(_polygon((108, 180), (148, 180), (128, 200)), skin)


def _draw_hair_behind(canvas: skia.Canvas, person: Portrait) -> None:
    paint = _fill(_shade(HAIR_COLORS[person.hair_color], 0.8))
    if person.hair_style == "long":
        canvas.drawRoundRect(skia.Rect(74, 70, 182, 200), 40, 40, paint)
    elif person.hair_style == "bob":
        canvas.drawRoundRect(skia.Rect(76, 64, 180, 158), 34, 34, paint)
    elif person.hair_style == "afro":
        canvas.drawCircle(128, 96, 72, paint)
    elif person.hair_style == "bun":
        canvas.drawCircle(128, 50, 22, paint)


def _draw_eyes(canvas: skia.Canvas, person: Portrait, brow: Rgb) -> None:
    gap, size = 19 * person.eye_gap, person.eye_size
    for side in (-1, 1):
        x, y = HEAD_X + side * gap, HEAD_Y - 6
        canvas.drawPath(_oval(x, y, 9 * size, 6.5 * size), _fill((250, 250, 250)))
        canvas.drawCircle(x, y, 5 * size, _fill(person.eye_color))
        canvas.drawCircle(x, y, 2.4 * size, _fill((15, 15, 18)))
        canvas.drawCircle(x + 1.5, y - 1.8, 1.2, _fill((255, 255, 255)))
        slant = side * person.brow_slant * 4
        canvas.drawLine(x - 9, y - 14 - slant, x + 9, y - 14 + slant, _pen(brow, 3.6))
    if person.glasses == "none":
        return
    for side in (-1, 1):
        lens = _oval(HEAD_X + side * gap, HEAD_Y - 5, 14, 11)
        canvas.drawPath(lens, _fill((22, 22, 28)) if person.glasses == "sunglasses" else _pen((40, 40, 48), 3))
    canvas.drawLine(HEAD_X - gap + 13, HEAD_Y - 6, HEAD_X + gap - 13, HEAD_Y - 6, _pen((30, 30, 36), 3))


def _draw_mouth(canvas: skia.Canvas, person: Portrait) -> None:
    x, y = HEAD_X, HEAD_Y + 29
    lip = _pen(person.lip_color, 3.6)
    if person.mouth == "neutral":
        canvas.drawLine(x - 12, y, x + 12, y, lip)
    elif person.mouth == "open":
        canvas.drawPath(_oval(x, y + 1, 11, 8), _fill((90, 25, 30)))
        canvas.drawPath(_oval(x, y - 3, 8, 2.5), _fill((250, 250, 250)))
    else:
        ends, middle = (y - 2, y + 12) if person.mouth == "smile" else (y + 4, y - 7)
        curve = skia.Path()
        curve.moveTo(x - 14, ends)
        curve.quadTo(x, middle, x + 14, ends)
        canvas.drawPath(curve, lip)


def _draw_face(canvas: skia.Canvas, person: Portrait) -> None:
    skin = SKIN_COLORS[person.skin]
    rx = HEAD_RX * person.head_width
    for side in (-1, 1):
        canvas.drawPath(_oval(HEAD_X + side * rx, HEAD_Y + 4, 9, 13), _fill(_shade(skin, 0.9)))
    glow = skia.GradientShader.MakeRadial(
        (HEAD_X - 14 * person.light, HEAD_Y - 14), 78, [_argb(_shade(skin, 1.05)), _argb(_shade(skin, 0.78))]
    )
    canvas.drawPath(_head(person), skia.Paint(AntiAlias=True, Shader=glow))
    if person.freckles:
        for dx, dy in ((22, 14), (16, 19), (26, 20)):
            for side in (-1, 1):
                canvas.drawCircle(HEAD_X + side * dx, HEAD_Y + dy, 1.6, _fill(_shade(skin, 0.62)))

    hair = _shade(HAIR_COLORS[person.hair_color], 0.85)
    if person.beard in ("full", "stubble"):
        canvas.save()
        canvas.clipPath(_head(person), doAntiAlias=True)
        canvas.drawPath(_oval(HEAD_X, HEAD_Y + 42, rx * 1.02, 33), _fill(hair, 255 if person.beard == "full" else 60))
        canvas.restore()
    if person.beard == "full":
        canvas.drawPath(_oval(HEAD_X, HEAD_Y + 18, rx * 0.72, 20), _fill(skin))

    _draw_eyes(canvas, person, hair)
    nose, tip = _pen(_shade(skin, 0.7), 2.4), HEAD_X - 3 * person.nose
    canvas.drawLine(HEAD_X, HEAD_Y + 2, tip, HEAD_Y + 15, nose)
    canvas.drawLine(tip, HEAD_Y + 15, HEAD_X + 4 * person.nose, HEAD_Y + 16, nose)
    _draw_mouth(canvas, person)
    if person.beard == "mustache":
        for side in (-1, 1):
            canvas.drawPath(_oval(HEAD_X + side * 8, HEAD_Y + 22, 10, 3.6), _fill(hair))


def _draw_hair_front(canvas: skia.Canvas, person: Portrait) -> None:
    if person.hair_style == "bald":
        return
    hair = HAIR_COLORS[person.hair_color]
    rx, ry = HEAD_RX * person.head_width, HEAD_RY * person.head_height
    fringe = skia.Path()
    fringe.moveTo(60, 40)
    fringe.lineTo(196, 40)
    if person.hair_style == "side":
        fringe.lineTo(196, 100)
        fringe.cubicTo(160, 92, 110, 96, 84, 112)
        fringe.lineTo(60, 120)
    elif person.hair_style in ("long", "bob"):
        fringe.lineTo(196, 126)
        fringe.cubicTo(172, 110, 168, 90, 128, 80)
        fringe.cubicTo(88, 90, 84, 110, 60, 126)
    else:
        fringe.lineTo(196, 92)
        fringe.cubicTo(160, 80, 96, 80, 60, 92)
    fringe.close()
    canvas.save()
    scalp = skia.Path().addOval(skia.Rect(HEAD_X - rx - 5, HEAD_Y - ry - 9, HEAD_X + rx + 5, HEAD_Y + ry))
    canvas.clipPath(scalp, doAntiAlias=True)
    canvas.drawPath(fringe, _linear(_shade(hair, 1.15), _shade(hair, 0.9), (80, 60), (180, 110)))
    canvas.restore()


def _draw_hat(canvas: skia.Canvas, person: Portrait) -> None:
    if person.hat == "none":
        return
    color = CLOTH_COLORS[person.hat_color]
    is_cap = person.hat == "cap"
    inset, brim, top = (80, 88, 40) if is_cap else (78, 92, 36)
    dome = skia.Path()
    dome.moveTo(inset, brim)
    dome.cubicTo(inset + 1, top, CANVAS - inset - 1, top, CANVAS - inset, brim)
    dome.close()
    canvas.drawPath(dome, _fill(color))
    if is_cap:
        canvas.drawRoundRect(skia.Rect(76, 82, 206, 94), 6, 6, _fill(_shade(color, 0.75)))
    else:
        canvas.drawRoundRect(skia.Rect(74, 78, 182, 98), 8, 8, _fill(_shade(color, 0.8)))
        canvas.drawCircle(128, 46, 9, _fill(_shade(color, 1.2)))


def _paint(size: int, draw: Callable[[skia.Canvas], None]) -> np.ndarray:
    surface = skia.Surface(size, size)
    canvas = surface.getCanvas()
    canvas.scale(size / CANVAS, size / CANVAS)
    draw(canvas)
    pixels = surface.toarray(colorType=skia.ColorType.kRGBA_8888_ColorType)
    return np.ascontiguousarray(pixels[..., :3])


def _tilted(canvas: skia.Canvas, person: Portrait, *parts: Callable[[skia.Canvas, Portrait], None]) -> None:
    canvas.save()
    canvas.rotate(person.tilt_deg, 128, 150)
    for part in parts:
        part(canvas, person)
    canvas.restore()


def render_portrait(person: Portrait, size: int, window: tuple[float, float, float] | None = None) -> np.ndarray:
    """Render a portrait as uint8 RGB of shape (size, size, 3).

    ``window`` = (left, top, side) shows only that square of the canvas, in canvas units.
    """

    def draw(canvas: skia.Canvas) -> None:
        if window:
            left, top, side = window
            canvas.scale(CANVAS / side, CANVAS / side)
            canvas.translate(-left, -top)
        _draw_background(canvas, person)
        canvas.translate(person.shift_x, person.shift_y)
        _tilted(canvas, person, _draw_hair_behind)
        _draw_neck(canvas, person)
        _draw_garment(canvas, person)
        _draw_neckline(canvas, person)
        _tilted(canvas, person, _draw_face, _draw_hair_front, _draw_hat)

    return _paint(size, draw)


def render_garment(person: Portrait, size: int) -> np.ndarray:
    """Render the portrait's garment alone, laid flat on grey, as uint8 RGB of shape (size, size, 3)."""

    def draw(canvas: skia.Canvas) -> None:
        canvas.clear(_argb((232, 232, 232)))
        canvas.translate(128, 120)
        canvas.scale(1.1, 1.5)
        canvas.translate(-128, -200)
        _draw_garment(canvas, person)

    return _paint(size, draw)


def render_mask(region: Region, person: Portrait, size: int) -> np.ndarray:
    """Render a region of the portrait as a bool mask of shape (size, size); True is edited."""
    white = _fill((255, 255, 255))

    def draw(canvas: skia.Canvas) -> None:
        canvas.clear(skia.ColorBLACK)
        canvas.translate(person.shift_x, person.shift_y)
        if region == "garment":
            outline = skia.Paint(white)
            outline.setStyle(skia.Paint.kStrokeAndFill_Style)
            outline.setStrokeWidth(24)
            canvas.drawPath(_torso(), outline)
            return
        canvas.rotate(person.tilt_deg, 128, 150)
        if region == "face":
            canvas.drawPath(_oval(HEAD_X, HEAD_Y + 2, 44 * person.head_width, 53 * person.head_height), white)
        elif region == "hair":
            canvas.drawRoundRect(skia.Rect(44, 8, 212, 106), 40, 40, white)
        elif region == "eyes":
            canvas.drawRoundRect(skia.Rect(76, 84, 180, 134), 16, 16, white)
        else:
            canvas.drawRoundRect(skia.Rect(80, 124, 176, 176), 22, 22, white)

    return _paint(size, draw)[..., 0] > 127
